/** The projections of proj4: functions of an object that has their parameters. */
declare module "proj4/lib/projections/*" {
  type Turn = (place: { x: number; y: number }) => { x: number; y: number } | null;
  const projection: { init(): void; forward: Turn; inverse: Turn };
  export default projection;
}
